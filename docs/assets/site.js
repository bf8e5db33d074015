"use strict";
// Wide tables, programs and equations scroll, which must be possible with the keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  const name = document.querySelector(".md-search");
  if (name && !name.getAttribute("aria-label")) name.setAttribute("aria-label", "Search");
  setTimeout(() => {
    const wide = ".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset math";
    for (const part of document.querySelectorAll(wide)) {
      part.tabIndex = 0;
    }
  }, 0);
});
