"use strict";
// Answers of the calculator and the cost of a table while fields change, and the progress of jobs. All work without it.
// The address bar shows no token, so that an address can be shared; this tab keeps it for reloads (see entry.js).
const here = new URL(location.href);
if (here.searchParams.has("token")) {
  sessionStorage.setItem("token", here.searchParams.get("token"));
  here.searchParams.delete("token");
  history.replaceState(null, "", here);
}
const parsed = async (reply) => new DOMParser().parseFromString(await reply.text(), "text/html");
const live = (form, answer, ask, then = () => {}) => {
  let wanted = 0;
  form.addEventListener("input", async () => {
    const mine = ++wanted;
    const query = new URLSearchParams(new FormData(form));
    const reply = await ask(query);
    if (mine !== wanted || !reply.ok) return;
    answer.replaceChildren(...(await parsed(reply)).body.childNodes);
    then(query);
  });
};
const calculator = document.getElementById("calculator");
if (calculator) {
  const answer = document.getElementById("answer");
  let waiting = 0;
  // What is found is read-only and shows what was found; what is wrong says so beside its field.
  const told = (query) => {
    const now = document.getElementById("told");
    const wrong = Object.fromEntries([...now.children].map((each) => [each.dataset.field, each.textContent]));
    for (const field of calculator.querySelectorAll("input[inputmode]")) {
      field.readOnly = field.name === now.dataset.solve;
      if (field.readOnly) field.value = now.dataset.found || field.value;
      document.getElementById(field.name + "-fault").textContent = wrong[field.name] ?? "";
      field.toggleAttribute("aria-invalid", field.name in wrong);
    }
    query.delete("token");
    history.replaceState(null, "", "/calculator?" + query);
  };
  const ask = (query) => fetch(calculator.dataset.answer + "?" + query, { credentials: "omit" });
  live(calculator, answer, ask, (query) => {
    told(new URLSearchParams(query));
    clearTimeout(waiting);
    if (!document.getElementById("drawing")) return;
    waiting = setTimeout(async () => {
      const mine = waiting;
      query.set("drawn", "yes");
      const reply = await ask(query);
      if (mine === waiting && reply.ok) answer.replaceChildren(...(await parsed(reply)).body.childNodes);
    }, 300);
  });
}
const table = document.getElementById("table");
if (table) {
  const asked = { method: "POST", credentials: "omit" };
  table.addEventListener("input", ({ target }) => {
    target.removeAttribute("aria-invalid");
    document.getElementById(target.id + "-fault")?.remove();
  });
  live(table, document.getElementById("cost"), (body) => fetch(table.dataset.cost, { ...asked, body }));
}
document.getElementById("faults")?.focus();
// A row keeps its place while it runs, so that the keyboard stays where it is; its links come at the end.
const watch = async (row) => {
  const reply = await fetch(row.dataset.job, { credentials: "omit" });
  if (!reply.ok) return;
  const fresh = (await parsed(reply)).querySelector("tr");
  if (fresh.dataset.status !== "running") {
    row.replaceWith(fresh);
    return;
  }
  row.querySelector(".state").textContent = fresh.querySelector(".state").textContent;
  for (const name of ["max", "value"]) row.querySelector("progress")[name] = fresh.querySelector("progress")[name];
  setTimeout(() => watch(row), 700);
};
document.querySelectorAll('tr[data-status="running"]').forEach(watch);
