// What the page does while its modules cannot be loaded, for example because the network changed meanwhile: it loads
// again by itself a few times, then says so. This is no module, so that it runs where no module does.

(() => {
  const STORAGE_KEY = "stateward-reloads";
  const PAUSES_MS = [500, 2_000];
  let failed = false;

  /** The text that the first view replaces. */
  const text = () => document.querySelector("#loading");
  const reloads = () => Number(sessionStorage.getItem(STORAGE_KEY));

  function reload() {
    if (text() === null) return; // the error was that of a plug-in: the page itself works
    sessionStorage.setItem(STORAGE_KEY, String(reloads() + 1));
    location.reload();
  }

  function loadAgain() {
    failed = true;
    const pause = PAUSES_MS[reloads()];
    if (pause !== undefined) setTimeout(reload, pause);
    else tell();
  }

  function tell() {
    const button = Object.assign(document.createElement("button"), { textContent: "Load again" });
    button.addEventListener("click", reload);
    text()?.replaceChildren("The console could not be loaded: a part of it did not arrive, or does not run. ", button);
    text()?.setAttribute("data-failed", "");
  }

  // A script that is not loaded tells its element only, before the event gets here; one that does not run, the window.
  const isOfPage = (/** @type {EventTarget | null} */ one) => one === window || one instanceof HTMLScriptElement;
  window.addEventListener("error", (event) => !failed && isOfPage(event.target) && text() && loadAgain(), true);
  window.addEventListener("load", () => failed || sessionStorage.removeItem(STORAGE_KEY));
})();
