"use strict";
// Wide tables and programs scroll, which must be possible with the keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  const name = document.querySelector(".md-search");
  if (name && !name.getAttribute("aria-label")) name.setAttribute("aria-label", "Search");
  setTimeout(() => {
    for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
      part.tabIndex = 0;
    }
  }, 0);
});
