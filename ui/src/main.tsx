// Starts the console.

import { render } from "preact";
import { App } from "./app";
import { startRouter } from "./lib/router";
import { startTheme } from "./lib/theme";
import "./style/base.css";
import "./style/components.css";
import "./style/pages.css";

startTheme();
startRouter();
const root = document.getElementById("app");
if (root) render(<App />, root);
