// Sends what stands in an operation's text area, and shows the answer below it.
for (const operation of document.querySelectorAll("details[data-path]")) {
  const { method, path } = operation.dataset;
  operation.querySelector("button")?.addEventListener("click", () => send(operation, method.toUpperCase(), path));
}

async function send(operation, method, path) {
  const body = operation.querySelector("textarea")?.value;
  const key = document.getElementById("key").value;
  const scheme = path.startsWith("/v2/") ? "DeepL-Auth-Key" : "Bearer";
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `${scheme} ${key}` }) };
  const shown = operation.querySelector("pre[aria-live]");
  shown.hidden = false;
  try {
    // Relative, as a proxy may have put the service below another path.
    const answer = await fetch(`.${path}`, { method, headers, body });
    const text = await answer.text();
    shown.textContent = `${answer.status} ${answer.statusText}\n\n${formatted(text)}`;
  } catch (error) {
    shown.textContent = String(error);
  }
}

function formatted(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
