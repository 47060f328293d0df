"use strict";
// The calculator answers while its fields change, and jobs show their progress. Both pages work without this file.
const form = document.getElementById("calculator");
if (form) {
  let wanted = 0;
  const update = async () => {
    const mine = ++wanted;
    const query = new URLSearchParams(new FormData(form));
    const reply = await fetch(form.dataset.answer + "?" + query, { credentials: "omit" });
    const text = await reply.text();
    if (mine === wanted && reply.ok) {
      const page = new DOMParser().parseFromString(text, "text/html");
      document.getElementById("answer").replaceChildren(...page.body.childNodes);
    }
  };
  form.addEventListener("input", update);
}
const watch = async (row) => {
  const reply = await fetch(row.dataset.job, { credentials: "omit" });
  if (!reply.ok) return;
  const job = await reply.json();
  row.querySelector(".state").textContent = job.status + ": " + (job.says || job.stage);
  const bar = row.querySelector("progress");
  bar.max = job.total || 1;
  bar.value = job.done;
  if (job.status === "running") setTimeout(() => watch(row), 700);
};
document.querySelectorAll('tr[data-status="running"]').forEach(watch);
