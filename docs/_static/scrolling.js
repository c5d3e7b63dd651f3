// Boxes that scroll can be reached with the keyboard, as long as they have more to show than fits.
const boxes = "pre, .table-wrapper, .math-wrapper, div.math, .output";

const update = (box) => {
  if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
  else box.removeAttribute("tabindex");
};

addEventListener("DOMContentLoaded", () => {
  const observer = new ResizeObserver((entries) => entries.forEach((entry) => update(entry.target)));
  document.querySelectorAll(boxes).forEach((box) => observer.observe(box));
});
