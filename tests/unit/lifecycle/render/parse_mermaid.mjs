// Reads {name: diagram} as JSON from stdin and writes {name: what is wrong with it, or null} to stdout.
// Mermaid cleans labels with a browser's DOM, which Node.js has not. Only whether a diagram can be read matters here,
// so its cleaner is told to leave everything as it is.
import { readFileSync, writeFileSync } from "node:fs";
import cleaner from "dompurify";
import mermaid from "mermaid";

cleaner.addHook = () => {};
cleaner.sanitize = (text) => text;

async function wrongWith(diagram) {
  try {
    const { diagramType } = await mermaid.parse(diagram);
    return diagramType === "stateDiagram" ? null : `read as ${diagramType}`;
  } catch (error) {
    return error.message;
  }
}

const verdicts = [];
for (const [name, diagram] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  verdicts.push([name, await wrongWith(diagram)]);
}
writeFileSync(1, JSON.stringify(Object.fromEntries(verdicts)));
