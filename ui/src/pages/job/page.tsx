// One job.

import { useEffect, useMemo, useState } from "preact/hooks";
import { messageOf } from "../../api/client";
import { generation } from "../../api/connection";
import { isExecution } from "../../api/executions";
import { allowed, control, readMember, rerun } from "../../api/jobs";
import type { Control, Job } from "../../api/jobs";
import { readAsset } from "../../api/operations";
import { capabilities, venueStatus } from "../../api/venue";
import { VerificationBadge } from "../../components/badge";
import { CopyButton, Id, operationName } from "../../components/copy";
import { Confirm } from "../../components/dialog";
import { Icon } from "../../components/icons";
import type { IconName } from "../../components/icons";
import { FieldProblem, Loading, Problem } from "../../components/states";
import { lookOf, StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { callsOf } from "../../lib/calls";
import { useLoad } from "../../lib/load";
import { jsonText } from "../../lib/json_text";
import { navigate, paths } from "../../lib/router";
import type { JobTab } from "../../lib/router";
import { asCli, asCurl } from "../../lib/shell";
import { useStore } from "../../lib/store";
import { onShortcut } from "../../lib/shortcuts";
import { isTerminal } from "@verify/status";
import { asMap, asText } from "@verify/value";
import { ChainVerification } from "../../verify/verification";
import { Calls } from "./calls";
import { Chain } from "./chain";
import { ExecutionTab } from "./execution";
import { useJob } from "./follow";
import { Messages } from "./messages";
import { Overview } from "./overview";
import { ProgressBar } from "./progress";
import { useRecords } from "./records";
import { Steps } from "./steps";

export function JobPage({ id, tab }: { id: string; tab: JobTab }) {
  const { job, error, reload } = useJob(id);
  if (error !== undefined && !job) {
    return (
      <>
        <h1 tabIndex={-1}>Job</h1>
        <Problem error={error} retry={reload} />
      </>
    );
  }
  if (!job) {
    return (
      <>
        <h1 tabIndex={-1}>Job</h1>
        <Loading what="the job" />
      </>
    );
  }
  return <LoadedJob key={job.id} job={job} tab={tab} reload={reload} />;
}

function LoadedJob({ job, tab, reload }: { job: Job; tab: JobTab; reload: () => void }) {
  const chain = useMemo(() => new ChainVerification(job.id), [job.id]);
  useEffect(() => () => chain.close(), [chain]);
  const verification = useStore(chain.state);
  const name = useDefinitionName(job);
  const read = useRecords(job.id, job.head);
  const calls = useMemo(() => callsOf(read.records.map(({ record }) => record)), [read.records]);
  const venue = useStore(venueStatus);
  const expected = {
    job: job.id,
    venue: venue?.did ?? job.venue,
    head: isTerminal(job.status) ? job.head : undefined,
  };
  const verify = (): void => void chain.run(expected);
  const current = useStore(generation);
  // Short chains are verified at once, and again as they grow; those that are long or have large
  // values are read on request.
  useEffect(() => {
    if (verification.state === "none" && job.omitted.length > 0) return;
    const pages = verification.state === "verified" ? Infinity : 1;
    void chain.run(expected, pages);
  }, [chain, job.head, current]);
  useEffect(() => onShortcut("v", verify), [chain, job.head]);
  const hasExecution = useStore(capabilities).hasExecutions && isExecution(job.op);
  const tabs: readonly (readonly [JobTab, string])[] = [
    ["overview", "Overview"],
    ...(hasExecution ? [["execution", "Execution"] as const] : []),
    ...(job.steps ? [["steps", `Steps (${job.steps.length})`] as const] : []),
    ...(calls.length > 0 ? [["calls", `Calls (${calls.length})`] as const] : []),
    ["messages", job.queueDepth > 0 ? `Messages (${job.queueDepth} queued)` : "Messages"],
    ["chain", "Chain"],
  ];
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <p class="crumbs">
            <a href={paths.jobs}>Jobs</a>
            {job.parent && (
              <>
                {" / "}
                <a href={paths.subjob(job.parent, job.parentStep)}>parent job</a>
              </>
            )}
          </p>
          <h1 tabIndex={-1}>
            <Text text={name ?? operationName(job.op)} most={200} />
          </h1>
          <div class="row wrap">
            <StatusChip status={job.status} />
            <VerificationBadge job={job.id} verification={verification} onVerify={verify} />
            <Id id={job.id} label="the job's ID" />
          </div>
          <p class="sr-only" role="status">
            The job is {lookOf(job.status).word.toLowerCase()}.
          </p>
        </div>
        <Actions job={job} reload={reload} />
      </header>
      {!isTerminal(job.status) && job.progress && <ProgressBar progress={job.progress} />}
      <nav class="tabs" aria-label="Parts of the job">
        {tabs.map(([name, title]) => (
          <a
            key={name}
            href={paths.job(job.id, name)}
            aria-current={name === tab ? "page" : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {tab === "overview" && <Overview job={job} read={read} />}
      {tab === "execution" && <ExecutionTab job={job} />}
      {tab === "steps" && <Steps job={job} />}
      {tab === "calls" && <Calls job={job} calls={calls} read={read} />}
      {tab === "messages" && <Messages job={job} read={read} />}
      {tab === "chain" && <Chain job={job} chain={chain} verification={verification} />}
    </>
  );
}

/** The name in the definition, for an operation that was invoked by the ID of its definition. */
function useDefinitionName(job: Job): string | undefined {
  const isId = operationName(job.op) !== job.op;
  const definition = useLoad(
    async (signal) => (isId ? readAsset(job.operation, signal) : null),
    [job.operation, isId],
  );
  return asText(asMap(definition.value)?.get("name"));
}

const CONTROLS: readonly (readonly [Control, string, IconName])[] = [
  ["pause", "Pause", "pause"],
  ["resume", "Resume", "play"],
  ["cancel", "Cancel", "stop"],
  ["delete", "Delete", "trash"],
];

function Actions({ job, reload }: { job: Job; reload: () => void }) {
  const [busy, setBusy] = useState<string | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [asked, setAsked] = useState<"cancel" | "delete" | undefined>(undefined);
  const venue = useStore(venueStatus);
  const may = allowed(job.status);
  const act = async (name: string, action: () => Promise<void>): Promise<void> => {
    setBusy(name);
    setProblem(undefined);
    try {
      await action();
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setBusy(undefined);
    }
  };
  const apply = (action: Control): void =>
    void act(action, async () => {
      await control(job.id, action);
      if (action === "delete") navigate(paths.jobs);
      else reload();
    });
  const input = async (): Promise<string> =>
    jsonText(job.omitted.includes("input") ? await readMember(job.id, "input") : (job.input ?? null));
  const { origin } = globalThis.location;
  return (
    <div class="actions">
      <div class="row wrap">
        {CONTROLS.filter(([action]) => may[action]).map(([action, title, icon]) => (
          <button
            key={action}
            type="button"
            class="button"
            disabled={busy !== undefined}
            onClick={() =>
              action === "cancel" || action === "delete" ? setAsked(action) : apply(action)
            }
          >
            <Icon name={icon} /> {busy === action ? "…" : title}
          </button>
        ))}
        {may.rerun && (
          <button
            type="button"
            class="button"
            disabled={busy !== undefined}
            onClick={() => void act("rerun", async () => navigate(paths.job(await rerun(job.id))))}
          >
            <Icon name="again" /> {busy === "rerun" ? "…" : "Run again"}
          </button>
        )}
        <CopyButton
          name="curl"
          label="Copy as a curl command"
          text={async () => asCurl(origin, job.op, await input(), venue?.isPublic === false)}
        />
        <CopyButton
          name="CLI"
          label="Copy as a catena command"
          text={async () => asCli(origin, job.op, await input())}
        />
      </div>
      <FieldProblem text={problem} />
      {asked === "cancel" && (
        <Confirm
          title="Cancel this job?"
          action="Cancel the job"
          isDangerous
          onConfirm={() => apply("cancel")}
          onClose={() => setAsked(undefined)}
        >
          <p>The running work is stopped{job.steps ? ", and its steps are cancelled too" : ""}.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm
          title="Delete this job?"
          action="Delete the job"
          isDangerous
          onConfirm={() => apply("delete")}
          onClose={() => setAsked(undefined)}
        >
          <p>Its records, and with them the proof of what happened, are deleted for good.</p>
        </Confirm>
      )}
    </div>
  );
}
