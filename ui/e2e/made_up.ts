// Answers of a venue that has more than the binary under test may have, or that would need an executor: the
// console is shown what the documented API says.

import { valueId } from "@verify/encode";
import { readText } from "@verify/json";
import type { Made } from "./proxy";
import type { Venue } from "./venue";

const ID = "0x0196f1a2b3c4d5e6f708192a3b4c5d6e";
const ARTIFACT = "7d9f3a52-0000-4000-8000-000000000001";

const CODE = `import math
values = [1, 2, 0]
for value in values:
    print(1 / value)
`;

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="window.pwned=1">
<script>window.pwned=1</script><rect width="80" height="40" fill="teal"/></svg>`;

const job = {
  id: ID,
  status: "FAILED",
  op: "exec:python",
  operation: "0".repeat(64),
  caller: "did:key:z6MkCaller",
  created: 1_769_850_000_000,
  updated: 1_769_850_000_120,
  input: { code: CODE },
  error: "ZeroDivisionError: division by zero",
};

const envelope = {
  schema_version: "1.0",
  job_id: "0196f1a2-b3c4-d5e6-f708-192a3b4c5d6e",
  job_type: "exec:python",
  status: "FAILED",
  attempt: 2,
  executor: "executor-1",
  tier: "T2",
  environment: { language: "python", env_version: "py-bare@0123456789ab", network_access: "disabled" },
  duration_ms: 41,
  limits: { timeout_ms: 30000, cpu_ms: 30000, memory_mb: 512, max_output_kb: 256, max_artifacts: 50 },
  resource_usage: { cpu_ms: 35, memory_mb_peak: 12 },
  outputs: {
    stdout: "1.0\n0.5\n<script>window.pwned=1</script>",
    stdout_truncated: true,
    stderr: "",
    stderr_truncated: false,
  },
  error: {
    category: "USER_CODE_ERROR",
    code: "PYTHON_EXCEPTION",
    message: "ZeroDivisionError: division by zero",
    details: { line: 4, column: 11, traceback: "Traceback (most recent call last):\n  line 4" },
  },
  artifacts: [
    {
      artifact_id: ARTIFACT,
      kind: "image",
      format: "svg",
      digest: `sha256:${"a".repeat(64)}`,
      size_bytes: SVG.length,
      content_type: "image/svg+xml",
      metadata: { name: "plot.svg" },
    },
    {
      artifact_id: "7d9f3a52-0000-4000-8000-000000000002",
      kind: "file",
      format: "html",
      digest: `sha256:${"b".repeat(64)}`,
      size_bytes: 30,
      content_type: "text/html",
      metadata: { name: "\u202epage.html" },
    },
  ],
  logs: [
    { level: "warning", message: "notes.txt is no artifact", timestamp: "2026-01-31T09:00:00.100Z" },
    { level: "error", message: "division by zero", timestamp: "2026-01-31T09:00:00.120Z" },
  ],
  logs_dropped: 3,
};

/** The chain of the made-up job: it was queued, started, and failed. */
function chainOf(venue: string): { head: string; history: string } {
  const { id, op, caller, input, created, updated, error } = job;
  const first = { id, venue, op, caller, input, created };
  const changes = [
    { status: "PENDING", updated: created, ...first },
    { status: "STARTED", updated: created + 9 },
    { status: "FAILED", updated, error },
  ];
  let prev: string | null = null;
  const records = changes.map((change) => {
    const record: object = { ...change, prev };
    prev = valueId(readText(JSON.stringify(record)));
    return { id: prev, record };
  });
  return { head: prev ?? "", history: JSON.stringify({ records, total: records.length }) };
}

/** What the venue lists, with further paths. */
export async function withPaths(venue: Venue, ...paths: string[]): Promise<string> {
  const document = (await venue.call("GET", "/openapi.json")) as { paths: Record<string, object> };
  for (const path of paths) document.paths[path] ??= {};
  return JSON.stringify(document);
}

/** A venue with one execution, which failed. */
export async function withExecution(
  venue: Venue,
): Promise<{ id: string; answer: (url: URL) => string | Made | undefined }> {
  const openapi = await withPaths(venue, "/contract/v1/jobs/{job_id}");
  const { did } = (await venue.call("GET", "/api/v1/status")) as { did: string };
  const { head, history } = chainOf(did);
  const answer = ({ pathname }: URL): string | Made | undefined => {
    switch (pathname) {
      case "/openapi.json":
        return openapi;
      case `/api/v1/jobs/${ID}`:
      case "/api/v1/invoke":
        return JSON.stringify({ ...job, venue: did, head });
      case `/api/v1/jobs/${ID}/history`:
        return history;
      case `/contract/v1/jobs/${ID}`:
        return JSON.stringify(envelope);
      case `/contract/v1/jobs/${ID}/artifacts/${ARTIFACT}`:
        return JSON.stringify({ url: `https://other.example/signed/${ARTIFACT}?signature=x` });
      case `/signed/${ARTIFACT}`:
        return { type: "image/svg+xml", body: SVG };
      default:
        return undefined;
    }
  };
  return { id: ID, answer };
}
