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
