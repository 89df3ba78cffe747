// Paths of the console, and moving between them.

import { Store } from "./store";

export type Route =
  | { readonly page: "home" }
  | { readonly page: "jobs" }
  | { readonly page: "job"; readonly id: string; readonly tab: JobTab }
  | { readonly page: "operations" }
  | { readonly page: "operation"; readonly name: string }
  | { readonly page: "register" }
  | { readonly page: "assets" }
  | { readonly page: "asset"; readonly id: string }
  | { readonly page: "schedules" }
  | { readonly page: "workspace" }
  | { readonly page: "executions" }
  | { readonly page: "agents" }
  | { readonly page: "agent"; readonly id: string }
  | { readonly page: "requests" }
  | { readonly page: "settings" }
  | { readonly page: "unknown"; readonly path: string };

export const JOB_TABS = ["overview", "execution", "steps", "calls", "messages", "chain"] as const;
export type JobTab = (typeof JOB_TABS)[number];

export interface Location {
  readonly path: string;
  readonly query: URLSearchParams;
  /** Without `#`. */
  readonly hash: string;
}

export function parseRoute(path: string): Route {
  if (path === "/" || path === "/ui" || path === "/ui/") return { page: "home" };
  const [section, ...rest] = path.replace(/^\/ui\//, "").split("/");
  const argument = safeDecode(rest.join("/"));
  switch (section) {
    case "jobs": {
      if (argument === "") return { page: "jobs" };
      const [id = "", tab = "overview"] = argument.split("/");
      const known = JOB_TABS.find((known) => known === tab);
      return known ? { page: "job", id, tab: known } : { page: "unknown", path };
    }
    case "operations":
      return argument === "" ? { page: "operations" } : { page: "operation", name: argument };
    case "register":
      return { page: "register" };
    case "assets":
      return argument === "" ? { page: "assets" } : { page: "asset", id: argument };
    case "agents":
      return argument === "" ? { page: "agents" } : { page: "agent", id: argument };
    case "schedules":
    case "workspace":
    case "executions":
    case "requests":
    case "settings":
      return argument === "" ? { page: section } : { page: "unknown", path };
    default:
      return { page: "unknown", path };
  }
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Each segment is encoded, slashes stay. */
const encodePath = (path: string): string => path.split("/").map(encodeURIComponent).join("/");

export const paths = {
  home: "/",
  jobs: "/ui/jobs",
  operations: "/ui/operations",
  register: "/ui/register",
  assets: "/ui/assets",
  schedules: "/ui/schedules",
  executions: "/ui/executions",
  agents: "/ui/agents",
  requests: "/ui/requests",
  agent: (id: string): string => `/ui/agents/${encodeURIComponent(id)}`,
  /** Without a path, the overview. In the query, because a name such as `..` has a meaning in a path. */
  workspace: (path = ""): string =>
    path === "" ? "/ui/workspace" : `/ui/workspace?path=${encodePath(path)}`,
  settings: "/ui/settings",
  job: (id: string, tab: JobTab = "overview"): string =>
    `/ui/jobs/${encodeURIComponent(id)}` + (tab === "overview" ? "" : `/${tab}`),
  record: (id: string, record: number): string => `${paths.job(id, "chain")}#record-${record}`,
  step: (id: string, step: number): string => `${paths.job(id, "steps")}#step-${step}`,
  /** Where a parent job shows one of its sub-jobs: its steps, or its calls if it is none of the steps. */
  subjob: (parent: string, step: number | undefined): string =>
    step === undefined ? paths.job(parent, "calls") : paths.step(parent, step),
  operation: (name: string): string => `/ui/operations/${encodePath(name)}`,
  schedule: (handle: string): string => `/ui/schedules#schedule-${handle}`,
  asset: (id: string): string => `/ui/assets/${encodeURIComponent(id)}`,
  jobsWhere: (filter: Record<string, string>): string =>
    `/ui/jobs?${new URLSearchParams(filter).toString()}`,
} as const;

function current(): Location {
  const { pathname, search, hash } = globalThis.location;
  return { path: pathname, query: new URLSearchParams(search), hash: hash.slice(1) };
}

export const location = new Store<Location>(
  typeof globalThis.location === "undefined"
    ? { path: "/", query: new URLSearchParams(), hash: "" }
    : current(),
);

/** Goes to a page of the console. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  location.set(current());
}

/** Follows the back button, and links within the console without loading the page again. */
export function startRouter(): void {
  addEventListener("popstate", () => location.set(current()));
  addEventListener("hashchange", () => location.set(current()));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href, document.baseURI);
    const isOwn = url.pathname === "/" || url.pathname.startsWith("/ui/");
    if (url.origin !== globalThis.location.origin || !isOwn) return;
    if (link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    navigate(url.pathname + url.search + url.hash);
  });
}
