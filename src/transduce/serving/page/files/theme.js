// Light or dark: as the system says, or as was chosen; always light on paper.

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

/** Where a page opened from disk may keep nothing, the choice lasts as long as the page. */
let chosen = remembered();

function remembered() {
  try {
    return localStorage.getItem("transduce-theme");
  } catch {
    return null;
  }
}

const current = () => chosen ?? (SYSTEM.matches ? "dark" : "light");

/** Put the theme on the page, now and whenever it changes. @param {() => void} changed */
export function followTheme(changed) {
  const apply = (theme) => {
    if (document.documentElement.dataset.theme === theme) return;
    document.documentElement.dataset.theme = theme;
    changed();
  };
  document.documentElement.dataset.theme = current();
  SYSTEM.addEventListener("change", () => apply(current()));
  addEventListener("beforeprint", () => apply("light"));
  addEventListener("afterprint", () => apply(current()));
  return {
    switch() {
      chosen = current() === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("transduce-theme", chosen);
      } catch {
        // Nothing is kept, and nothing is lost.
      }
      apply(chosen);
    },
  };
}
