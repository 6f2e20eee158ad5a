// Sorts a table by the column whose heading is pressed, and opens what is folded before the page is printed.
"use strict";
const UNITS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, k: 1e3, M: 1e6 };

// "12.3 µs ± 0.1 %" is 1.23e-5 and "best" is 0; other texts have no number.
function number(text) {
  if (text === "best") return 0;
  const found = /^([+-]?[\d.]+(?:e[+-]?\d+)?)\s?(ns|µs|ms|s|min|h|k|M)?(?![\w-])/.exec(text);
  return found ? Number(found[1]) * (UNITS[found[2]] || 1) : NaN;
}

// Numbers by their size, before texts.
function compare(a, b) {
  const x = number(a), y = number(b);
  if (!isNaN(x) && !isNaN(y)) return x - y;
  if (isNaN(x) !== isNaN(y)) return isNaN(x) - isNaN(y);
  return a.localeCompare(b, undefined, { numeric: true });
}

function sort(heading, column) {
  const table = heading.closest("table"), body = table.tBodies[0];
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = row => row.cells[column].textContent;
  const rows = [...body.rows].sort((a, b) => {  // empty places last
    const empty = (text(a) === "") - (text(b) === "");
    return empty || (down ? -1 : 1) * compare(text(a), text(b));
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable"))
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(heading, column));
    heading.append(button);
  });
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
