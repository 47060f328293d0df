// The theme puts each copy button into a <nav> without a name; landmarks of one page need names that differ (axe-core:
// landmark-unique).
function nameCopyButtons() {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((each) => {
    const block = each.querySelector("[data-clipboard-target]");
    each.setAttribute("aria-label", "Copy " + (block ? block.dataset.clipboardTarget.replace(/\W+/g, " ").trim() : ""));
  });
}
new MutationObserver(nameCopyButtons).observe(document.documentElement, { childList: true, subtree: true });
nameCopyButtons();

// Keyboard. On small screens the navigation is a drawer. The theme opens it by a label that takes no focus, and leaves the
// links of closed and covered panels in the order of Tab. Here a button opens it, and what cannot be seen is inert.
const small = matchMedia("(max-width: 76.2344em)"); // where the theme has the drawer
const drawer = document.getElementById("__drawer");
const search = document.getElementById("__search");
const sidebar = document.querySelector(".md-sidebar--primary");
const opener = document.createElement("button");

function placeOpener() {
  const label = document.querySelector(".md-header label[for=__drawer]");
  opener.type = "button";
  opener.className = "opener";
  opener.setAttribute("aria-label", "Navigation");
  opener.append(...label.childNodes);
  label.append(opener);
  opener.addEventListener("click", () => drawer.click());
}

function arrange() {
  const drawn = small.matches, open = drawn && drawer.checked;
  opener.setAttribute("aria-expanded", String(open));
  sidebar.inert = drawn && !open;
  document.querySelectorAll(".md-content, .md-footer, .md-sidebar--secondary").forEach((each) => (each.inert = open));
  sidebar.querySelectorAll("[inert]").forEach((each) => (each.inert = false));
  sidebar.querySelectorAll("label[for]:not([for=__drawer])").forEach((each) => {
    each.dataset.tab ??= each.tabIndex; // on wide screens as the theme has it
    each.tabIndex = drawn ? 0 : each.dataset.tab;
  });
  if (drawn) sidebar.querySelectorAll("input.md-nav__toggle").forEach(arrangePanel);
}

function arrangePanel(toggle) {
  const item = toggle.parentElement, panel = item.querySelector(":scope > nav");
  if (!panel) return;
  panel.inert = !toggle.checked;
  if (!toggle.checked) return;
  const around = [...item.parentElement.children].filter((each) => each !== item);
  const before = [...item.children].filter((each) => each !== panel);
  const title = item.closest("nav").querySelector(":scope > .md-nav__title");
  [...around, ...before, title].forEach((each) => (each.inert = true));
}

if (drawer && sidebar) {
  placeOpener();
  arrange();
  small.addEventListener("change", arrange);
  document.addEventListener("change", (event) => {
    arrange();
    if (event.target === drawer) (drawer.checked ? sidebar.querySelector("a") : opener).focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && small.matches && drawer.checked) drawer.click();
    const label = event.target.closest("label[for][tabindex]");
    if (label && [" ", "Enter"].includes(event.key)) {
      event.preventDefault();
      event.stopPropagation(); // the theme clicks as well
      label.click();
    }
  }, true);
  document.addEventListener("focusin", (event) => { // an open search lies over the page
    if (search.checked && !event.target.closest(".md-search")) search.click();
  });
}
// The choice of a palette has one entry, and the system decides it: nothing to stop at.
document.querySelectorAll("input.md-option").forEach((each) => (each.tabIndex = -1));
