// The frame around every page.

import { useEffect, useRef, useState } from "preact/hooks";
import { generation } from "./api/connection";
import { token } from "./api/session";
import { readCapabilities, readStatus, venueStatus } from "./api/venue";
import { ConnectionBanner } from "./components/banner";
import { HelpDialog } from "./components/help";
import { Icon } from "./components/icons";
import type { IconName } from "./components/icons";
import { Palette } from "./components/palette";
import { SignInDialog } from "./components/sign_in";
import { Empty } from "./components/states";
import { Text } from "./components/text";
import { location, navigate, parseRoute, paths } from "./lib/router";
import type { Route } from "./lib/router";
import { onShortcut, startShortcuts } from "./lib/shortcuts";
import { useStore } from "./lib/store";
import { AssetPage, AssetsPage } from "./pages/assets";
import { HomePage } from "./pages/home";
import { JobPage } from "./pages/job/page";
import { JobsPage } from "./pages/jobs";
import { OperationPage } from "./pages/operation";
import { OperationsPage } from "./pages/operations";
import { RegisterPage } from "./pages/register";
import { SchedulesPage } from "./pages/schedules";
import { SettingsPage } from "./pages/settings";

interface Section {
  readonly title: string;
  readonly href: string;
  readonly icon: IconName;
  readonly pages: readonly Route["page"][];
}

const SECTIONS: readonly Section[] = [
  { title: "Home", href: paths.home, icon: "home", pages: ["home"] },
  { title: "Jobs", href: paths.jobs, icon: "jobs", pages: ["jobs", "job"] },
  {
    title: "Operations",
    href: paths.operations,
    icon: "operations",
    pages: ["operations", "operation", "register"],
  },
  { title: "Assets", href: paths.assets, icon: "assets", pages: ["assets", "asset"] },
  { title: "Schedules", href: paths.schedules, icon: "schedules", pages: ["schedules"] },
  { title: "Settings", href: paths.settings, icon: "settings", pages: ["settings"] },
];

export function App() {
  const { path } = useStore(location);
  const route = parseRoute(path);
  const venue = useStore(venueStatus);
  const used = useStore(token);
  const current = useStore(generation);
  const [overlay, setOverlay] = useState<"palette" | "help" | undefined>(undefined);
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
        {SECTIONS.map(({ title, href, icon, pages }) => (
          <a key={href} href={href} aria-current={pages.includes(route.page) ? "page" : undefined}>
            <Icon name={icon} />
            <span>{title}</span>
          </a>
        ))}
      </nav>
      <main id="main" class="main">
        <ConnectionBanner />
        <Page route={route} />
      </main>
      <SignInDialog />
      {overlay === "palette" && <Palette onClose={() => setOverlay(undefined)} />}
      {overlay === "help" && <HelpDialog onClose={() => setOverlay(undefined)} />}
    </div>
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
