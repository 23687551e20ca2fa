"use strict";
// Filters of examples: words of the text and equal values of fields. Without this, all are shown.
for (const box of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.getElementById(box.dataset.filter).children];
  const apply = () => {
    const words = box.querySelector("input").value.toLowerCase();
    const wanted = [...box.querySelectorAll("select")].filter((one) => one.value !== "");
    let shown = 0;
    for (const row of rows) {
      row.hidden = !(row.textContent.toLowerCase().includes(words) &&
        wanted.every((one) => row.getAttribute("data-" + one.name) === one.value));
      shown += row.hidden ? 0 : 1;
    }
    box.querySelector("output").textContent = shown + " of " + rows.length + " shown";
  };
  box.hidden = false;
  box.addEventListener("input", apply);
  apply();
}
// What is folded up is printed as well.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
