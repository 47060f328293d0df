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
const live = (form, answer, ask) => {
  let wanted = 0;
  form.addEventListener("input", async () => {
    const mine = ++wanted;
    const reply = await ask(new URLSearchParams(new FormData(form)));
    if (mine === wanted && reply.ok) answer.replaceChildren(...(await parsed(reply)).body.childNodes);
  });
};
const calculator = document.getElementById("calculator");
if (calculator) {
  const address = calculator.dataset.answer + "?";
  live(calculator, document.getElementById("answer"), (query) => fetch(address + query, { credentials: "omit" }));
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
