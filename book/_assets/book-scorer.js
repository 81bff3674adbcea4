/* The order of search results: chapters in the book's order, then the terms, then the other pages to
   read, then the reference of the package, and last the list of equations. Within each, as Sphinx
   scores them; no score of its own reaches 200. */
Scorer.score = function ([page, , , , score]) {
  const chapter = /^notebooks\/(\d+)/.exec(page);
  if (chapter) { return 800 + score - chapter[1] / 100; }
  if (page === "book/terms") { return 600 + score; }
  if (page === "book/equations") { return score; }
  return (page.startsWith("book/api/") ? 200 : 400) + score;
};
