// Answers of the documented form, for what a venue under test cannot be brought to say.

import type { Venue } from "./venue";

/** `GET /contract/v1/executors`: one executor that works, and one that can run nothing. */
export const EXECUTORS = {
  slots: 3,
  running: 1,
  executors: [
    {
      executor: "host-4711-ab12cd",
      tier: "T2",
      tiers: [
        { tier: "T1", available: true },
        { tier: "T2", available: true },
      ],
      slots: 2,
      running: 1,
      announced_at: "2026-11-17T10:00:00.000Z",
      heartbeat_at: "2026-11-17T10:00:07.000Z",
      lease_until: "2026-11-17T10:00:17.000Z",
      environments: ["py-bare@0123456789ab", "py-sci@ba9876543210"],
    },
    {
      executor: "host-4712-\u202eef34",
      tier: null,
      tiers: [{ tier: "T1", available: false, reason: "user namespaces are not allowed" }],
      slots: 1,
      running: 0,
      announced_at: "2026-11-17T10:00:01.000Z",
      heartbeat_at: "2026-11-17T10:00:06.000Z",
      lease_until: null,
      environments: [],
      unavailable: "no Python interpreter <b>was found</b>",
    },
  ],
  environments: [
    {
      env_version: "py-bare@0123456789ab",
      profile: "bare",
      job_types: ["object_execute"],
      is_default: true,
      executors: 1,
      announced_at: "2026-11-17T10:00:00.000Z",
    },
    {
      env_version: "py-old@000000000000",
      profile: "old",
      job_types: ["object_execute"],
      is_default: false,
      executors: 0,
      announced_at: "2026-11-16T10:00:00.000Z",
    },
  ],
};

/** Answers of a venue that lists these executors. */
export async function withExecutors(
  venue: Venue,
  executors: object = EXECUTORS,
): Promise<(url: URL) => string | undefined> {
  const document = (await venue.call("GET", "/openapi.json")) as { paths: Record<string, object> };
  document.paths["/contract/v1/executors"] ??= {};
  const openapi = JSON.stringify(document);
  return ({ pathname }) => {
    if (pathname === "/openapi.json") return openapi;
    return pathname === "/contract/v1/executors" ? JSON.stringify(executors) : undefined;
  };
}
