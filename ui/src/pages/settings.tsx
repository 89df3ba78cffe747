// Identity, theme, keyboard, and what this venue offers.

import { requestSignIn, signOut, token } from "../api/session";
import { capabilities, readStatus, whoAmI } from "../api/venue";
import { Id } from "../components/copy";
import { Fact } from "../components/facts";
import { ShortcutList } from "../components/help";
import { Icon } from "../components/icons";
import { Result } from "../components/states";
import { Text } from "../components/text";
import { useLoad } from "../lib/load";
import { useStore } from "../lib/store";
import { chooseTheme, theme, THEMES } from "../lib/theme";

export function SettingsPage() {
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Settings</h1>
      </header>
      <div class="grid two">
        <IdentityCard />
        <ThemeCard />
        <VenueCard />
        <section class="card">
          <h2>Keyboard</h2>
          <ShortcutList />
        </section>
      </div>
    </>
  );
}

function IdentityCard() {
  const used = useStore(token);
  const identity = useLoad(whoAmI, [used === undefined ? "anonymous" : used.length]);
  return (
    <section class="card">
      <h2>Identity</h2>
      <Result loaded={identity} what="your identity">
        {({ caller, isAuthenticated }) => (
          <dl class="facts narrow">
            <Fact name="You are">{isAuthenticated ? "signed in" : "anonymous"}</Fact>
            <Fact name="DID">
              <Id id={caller} label="your DID" />
            </Fact>
          </dl>
        )}
      </Result>
      <p class="muted">
        A token is kept in memory, or until this tab is closed if you ask for it. It is never part
        of an address and never stored longer.
      </p>
      <div class="row wrap">
        <button
          type="button"
          class="button"
          onClick={() =>
            void requestSignIn("Sign in with a token of this venue.").then(identity.reload)
          }
        >
          <Icon name="key" /> {used === undefined ? "Sign in" : "Use another token"}
        </button>
        {used !== undefined && (
          <button
            type="button"
            class="button"
            onClick={() => {
              signOut();
              identity.reload();
            }}
          >
            Sign out
          </button>
        )}
      </div>
    </section>
  );
}

const THEME_NAMES = { system: "As the system", light: "Light", dark: "Dark" } as const;

function ThemeCard() {
  const current = useStore(theme);
  return (
    <section class="card">
      <h2>Theme</h2>
      <div class="segmented" role="group" aria-label="Theme">
        {THEMES.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={current === name}
            onClick={() => chooseTheme(name)}
          >
            {THEME_NAMES[name]}
          </button>
        ))}
      </div>
    </section>
  );
}

function VenueCard() {
  const status = useLoad(readStatus, []);
  const { hasEvents, hasStats, hasBulkControl } = useStore(capabilities);
  const offered = (has: boolean): string => (has ? "yes" : "not offered by this venue");
  return (
    <section class="card">
      <h2>Venue</h2>
      <Result loaded={status} what="the venue">
        {(value) => (
          <dl class="facts narrow">
            <Fact name="Name">
              <Text text={value.name} most={80} />
            </Fact>
            <Fact name="DID">
              <Id id={value.did} label="the venue's DID" />
            </Fact>
            <Fact name="Version">
              Catena {value.version}, Covia API {value.apiLevel}
            </Fact>
            <Fact name="Anonymous access">{value.isPublic ? "on" : "off"}</Fact>
            <Fact name="Stream of all jobs">
              {hasEvents ? "yes" : "no; lists are read every two seconds"}
            </Fact>
            <Fact name="Statistics">{offered(hasStats)}</Fact>
            <Fact name="Bulk actions">{offered(hasBulkControl)}</Fact>
          </dl>
        )}
      </Result>
      <p class="row wrap">
        <a href="/docs">HTTP API</a>
        <a href="/openapi.json">OpenAPI</a>
      </p>
    </section>
  );
}
