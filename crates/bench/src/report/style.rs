//! The page's style sheet and its script: light and dark, a phone and paper, tables that sort by their head.

/// Colours of eight lines that people who cannot distinguish red and green can tell apart; the dark ones are
/// lighter.
pub const STYLE: &str = "
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c1f24; --grid: #d8dce2; --soft: #f3f5f8; --warn: #8a4b00;
  --bad: #b3261e; --good: #146c2e;
  --line0: #0072b2; --line1: #d55e00; --line2: #009e73; --line3: #aa4499; --line4: #8a6d00; --line5: #3b8ed0;
  --line6: #882255; --line7: #555555; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181d; --ink: #e6e9ee; --grid: #3a404a; --soft: #1e232b; --warn: #f0b060; --bad: #ff8a80; --good: #7ddc95;
    --line0: #56b4e9; --line1: #ff9b57; --line2: #3ddbb0; --line3: #e69ad8; --line4: #e6d04a; --line5: #a9d3f5;
    --line6: #f08bb4; --line7: #b8bec8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin-bottom: 0.3rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; }
a { color: var(--line0); }
.warnings { border-left: 4px solid var(--warn); background: var(--soft); padding: 0.5rem 1rem; margin: 1rem 0; }
.warnings li { margin: 0.2rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; width: 100%; }
th, td { text-align: left; padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { background: var(--soft); } th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--line0); }
th[aria-sort=ascending] button::after { content: ' \\25B2'; } th[aria-sort=descending] button::after { content: ' \\25BC'; }
.none { opacity: 0.6; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); } .warn { color: var(--warn); }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; max-width: 52rem; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; font-size: 0.85rem; padding: 0; list-style: none; }
.legend i { display: inline-block; width: 1.2rem; height: 0.25rem; margin-right: 0.4rem; vertical-align: middle; }
pre { overflow-x: auto; background: var(--soft); padding: 0.6rem; font-size: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; font-size: 0.875rem; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding: 0.6rem; font-size: 15px; } th, td { padding: 0.2rem 0.35rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } figure svg { min-width: 45rem; } }
@media print { body { max-width: none; font-size: 10pt; } nav, th button::after { display: none; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; } figure svg { min-width: 0; } }
";

/// Sorts a table by the column whose header is clicked: numbers by value, which cells have in `data-v`.
/// Unfolds folded parts for printing.
pub const SCRIPT: &str = "
for (const button of document.querySelectorAll('th button')) {
  button.addEventListener('click', () => {
    const th = button.closest('th'), table = th.closest('table'), body = table.tBodies[0];
    const at = [...th.parentNode.children].indexOf(th), up = th.getAttribute('aria-sort') !== 'ascending';
    for (const other of th.parentNode.children) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const value = row => { const cell = row.cells[at]; return cell.dataset.v === undefined ? cell.textContent : +cell.dataset.v; };
    const order = (a, b) => { const x = value(a), y = value(b);
      return typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true }); };
    const rows = [...body.rows].sort((a, b) => up ? order(a, b) : order(b, a));
    for (const row of rows) body.append(row);
  });
}
let folded = [];
addEventListener('beforeprint', () => {
  folded = [...document.querySelectorAll('details:not([open])')];
  for (const one of folded) one.open = true;
});
addEventListener('afterprint', () => { for (const one of folded) one.open = false; });
";
