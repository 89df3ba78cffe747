// The frame around every page.

import { useEffect, useRef, useState } from "preact/hooks";
import { generation } from "./api/connection";
import { countRequests, openRequests } from "./api/requests";
import { token } from "./api/session";
import { capabilities, readCapabilities, readStatus, venueStatus } from "./api/venue";
import type { Capabilities } from "./api/venue";
import { ConnectionBanner } from "./components/banner";
import { HelpDialog } from "./components/help";
import { Icon } from "./components/icons";
import type { IconName } from "./components/icons";
import { Palette } from "./components/palette";
import { Dialog } from "./components/dialog";
import { SignInDialog } from "./components/sign_in";
import { Empty } from "./components/states";
import { Text } from "./components/text";
import { useInterval } from "./lib/load";
import { location, navigate, parseRoute, paths } from "./lib/router";
import type { Route } from "./lib/router";
import { onShortcut, startShortcuts } from "./lib/shortcuts";
import { useStore } from "./lib/store";
import { AgentsPage } from "./pages/agents/list";
import { AgentPage } from "./pages/agents/page";
import { AssetPage, AssetsPage } from "./pages/assets";
import { ExecutionsPage } from "./pages/executions";
import { HomePage } from "./pages/home";
import { JobPage } from "./pages/job/page";
import { JobsPage } from "./pages/jobs";
import { OperationPage } from "./pages/operation";
import { OperationsPage } from "./pages/operations";
import { RegisterPage } from "./pages/register";
import { RequestsPage } from "./pages/requests";
import { SchedulesPage } from "./pages/schedules";
import { SettingsPage } from "./pages/settings";
import { WorkspacePage } from "./pages/workspace/page";

interface Section {
  readonly title: string;
  /** Whether it has a place of its own on a narrow screen; the others are below "More". */
  readonly isMain: boolean;
  readonly href: string;
  readonly icon: IconName;
  readonly pages: readonly Route["page"][];
}

const section = (
  title: string,
  href: string,
  icon: IconName,
  pages: readonly Route["page"][],
  isMain = false,
): Section => ({ title, href, icon, pages, isMain });

/** The sections that this venue has something to show in. */
function sections({ hasWorkspace, hasExecutions, hasAgents, hasRequests }: Capabilities): Section[] {
  return [
    section("Home", paths.home, "home", ["home"], true),
    section("Jobs", paths.jobs, "jobs", ["jobs", "job"], true),
    section("Operations", paths.operations, "operations", ["operations", "operation", "register"], true),
    section("Assets", paths.assets, "assets", ["assets", "asset"]),
    section("Schedules", paths.schedules, "schedules", ["schedules"]),
    ...(hasAgents ? [section("Agents", paths.agents, "agents", ["agents", "agent"])] : []),
    ...(hasRequests ? [section("Requests", paths.requests, "message", ["requests"])] : []),
    ...(hasExecutions ? [section("Executions", paths.executions, "executions", ["executions"])] : []),
    ...(hasWorkspace ? [section("Workspace", paths.workspace(), "workspace", ["workspace"])] : []),
    section("Settings", paths.settings, "settings", ["settings"]),
  ];
}

export function App() {
  const { path } = useStore(location);
  const route = parseRoute(path);
  const venue = useStore(venueStatus);
  const used = useStore(token);
  const current = useStore(generation);
  const all = sections(useStore(capabilities));
  const [overlay, setOverlay] = useState<"palette" | "help" | "more" | undefined>(undefined);
  useEffect(() => {
    readStatus().catch(() => undefined);
    readCapabilities().catch(() => undefined);
  }, [current, used === undefined]);
  useEffect(() => {
    startShortcuts(() => setOverlay("palette"));
    const stops = [
      onShortcut("?", () => setOverlay("help")),
      onShortcut("g h", () => navigate(paths.home)),
      onShortcut("g j", () => navigate(paths.jobs)),
      onShortcut("g o", () => navigate(paths.operations)),
      onShortcut("g s", () => navigate(paths.schedules)),
      onShortcut("g w", () => navigate(paths.workspace())),
    ];
    return () => stops.forEach((stop) => stop());
  }, []);
  useFocusOnNavigation(route);
  return (
    <div class="app">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href={paths.home}>
          <Logo />
          <span>Catena</span>
        </a>
        {venue && (
          <span class="venue-name muted">
            <Text text={venue.name} most={40} />
          </span>
        )}
        <span class="spacer" />
        <RequestCount />
        <button type="button" class="button small palette-button" onClick={() => setOverlay("palette")}>
          <Icon name="search" /> <span class="wide-text">Go to…</span>
          <kbd class="wide-only" aria-hidden="true">
            Ctrl K
          </kbd>
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Keyboard shortcuts"
          onClick={() => setOverlay("help")}
        >
          <span aria-hidden="true">?</span>
        </button>
      </header>
      <nav class="side" aria-label="Main">
        {all.map((section) => (
          <SectionLink key={section.href} section={section} route={route} />
        ))}
        <button type="button" class="narrow-only" aria-haspopup="dialog" onClick={() => setOverlay("more")}>
          <Icon name="more" />
          <span>More</span>
        </button>
      </nav>
      <main id="main" class="main">
        <ConnectionBanner />
        <Page route={route} />
      </main>
      <SignInDialog />
      {overlay === "more" && (
        <Dialog title="More" kind="drawer" onClose={() => setOverlay(undefined)}>
          <nav class="side-list" aria-label="All sections" onClick={() => setOverlay(undefined)}>
            {all.map((section) => (
              <SectionLink key={section.href} section={section} route={route} />
            ))}
          </nav>
        </Dialog>
      )}
      {overlay === "palette" && <Palette onClose={() => setOverlay(undefined)} />}
      {overlay === "help" && <HelpDialog onClose={() => setOverlay(undefined)} />}
    </div>
  );
}

/** How often the questions that wait are counted while the page can be seen. */
const COUNT_MS = 5000;

/** How many questions of agents and jobs wait for an answer. Nothing is there if none does. */
function RequestCount() {
  const { hasRequests } = useStore(capabilities);
  const used = useStore(token);
  const current = useStore(generation);
  const open = useStore(openRequests);
  const isShown = useStore(location).path === paths.requests;
  // Whoever may not read them has none.
  const count = (): Promise<void> => countRequests().catch(() => openRequests.set(undefined));
  useEffect(() => {
    if (hasRequests) void count();
  }, [hasRequests, used, current]);
  useInterval(() => {
    // The page of the requests counts them itself.
    if (hasRequests && !isShown) void count();
  }, COUNT_MS);
  const words = open === 1 ? "1 question waits" : `${open?.toLocaleString("en")} questions wait`;
  return (
    <span role="status" class="request-count">
      {hasRequests && open !== undefined && open > 0 && (
        <a class="button small" href={paths.requests} title={`${words} for an answer`}>
          <Icon name="message" />
          <span aria-hidden="true">{open.toLocaleString("en")}</span>
          <span class="sr-only">{words} for an answer</span>
        </a>
      )}
    </span>
  );
}

function SectionLink({ section, route }: { section: Section; route: Route }) {
  const { title, href, icon, pages, isMain } = section;
  return (
    <a
      href={href}
      class={isMain ? "main-section" : undefined}
      aria-current={pages.includes(route.page) ? "page" : undefined}
    >
      <Icon name={icon} />
      <span>{title}</span>
    </a>
  );
}

function Page({ route }: { route: Route }) {
  switch (route.page) {
    case "home":
      return <HomePage />;
    case "jobs":
      return <JobsPage />;
    case "job":
      return <JobPage id={route.id} tab={route.tab} />;
    case "operations":
      return <OperationsPage />;
    case "operation":
      return <OperationPage name={route.name} />;
    case "register":
      return <RegisterPage />;
    case "assets":
      return <AssetsPage />;
    case "asset":
      return <AssetPage id={route.id} />;
    case "schedules":
      return <SchedulesPage />;
    case "agents":
      return <AgentsPage />;
    case "agent":
      return <AgentPage id={route.id} />;
    case "requests":
      return <RequestsPage />;
    case "executions":
      return <ExecutionsPage />;
    case "workspace":
      return <WorkspacePage />;
    case "settings":
      return <SettingsPage />;
    case "unknown":
      return (
        <>
          <h1 tabIndex={-1}>Not found</h1>
          <Empty title="The console has no such page.">
            <p>
              <a href={paths.home}>Home</a>
            </p>
          </Empty>
        </>
      );
  }
}

const TITLES: Readonly<Record<Route["page"], string>> = {
  home: "Home",
  jobs: "Jobs",
  job: "Job",
  operations: "Operations",
  operation: "Operation",
  register: "Register an operation",
  assets: "Assets",
  asset: "Asset",
  schedules: "Schedules",
  agents: "Agents",
  agent: "Agent",
  requests: "Requests",
  executions: "Executions",
  workspace: "Workspace",
  settings: "Settings",
  unknown: "Not found",
};

/** Moves the focus to the heading of a new page, and names the page in the title. */
function useFocusOnNavigation(route: Route): void {
  const isFirst = useRef(true);
  const key = route.page + ("id" in route ? route.id : "name" in route ? route.name : "");
  useEffect(() => {
    const id = route.page === "job" ? ` ${route.id.slice(0, 12)}` : "";
    document.title = `${TITLES[route.page]}${id} · Catena`;
    if (!isFirst.current) document.querySelector<HTMLElement>("main h1")?.focus();
    isFirst.current = false;
  }, [key]);
}

function Logo() {
  return (
    <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" class="logo">
      <rect x="2" y="8" width="11" height="8" rx="4" />
      <rect x="11" y="8" width="11" height="8" rx="4" />
    </svg>
  );
}
