// The result of the verification in this browser. Never a bare tick: it says what was checked.

import { paths } from "../lib/router";
import type { Verification } from "../verify/verification";
import { Icon } from "./icons";
import { Text } from "./text";

const count = (n: number, word: string): string =>
  `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

export function VerificationBadge({
  job,
  verification,
  onVerify,
}: {
  job: string;
  verification: Verification;
  onVerify: () => void;
}) {
  switch (verification.state) {
    case "verified": {
      const { report, tree } = verification;
      const subjobs = tree && !tree.isRunning ? `, ${count(tree.verified, "sub-job")}` : "";
      return (
        <a
          class="badge good"
          data-verification="verified"
          href={paths.job(job, "chain")}
          title={`This browser recomputed every record ID and link. Head: ${report.head}`}
        >
          <Icon name="chain" />
          <span>
            verified here: {count(report.records, "record")}
            {subjobs}
          </span>
        </a>
      );
    }
    case "mismatch": {
      const { fault, subjob } = verification;
      const place =
        fault.record === undefined
          ? "mismatch in the history"
          : `mismatch at record ${fault.record}`;
      const href =
        fault.record === undefined || subjob !== undefined
          ? paths.job(subjob ?? job, "chain")
          : paths.record(job, fault.record);
      return (
        <a class="badge bad" data-verification="mismatch" href={href} title={fault.reason}>
          <Icon name="warn" />
          <span>
            {place}
            {subjob !== undefined && " of a sub-job"}
          </span>
        </a>
      );
    }
    case "running":
      return (
        <span class="badge" data-verification="running" role="status">
          <span class="spinner" aria-hidden="true" />
          <span>
            verifying: {verification.checked.toLocaleString("en")}
            {verification.total !== undefined && ` of ${count(verification.total, "record")}`}
          </span>
        </span>
      );
    default:
      return (
        <span class="badge" data-verification="none">
          <Icon name="chain" />
          <span>
            not yet verified
            {verification.state === "none" && verification.checked > 0 && verification.total
              ? ` (${verification.checked.toLocaleString("en")} of ${count(verification.total, "record")})`
              : ""}
          </span>
          <button type="button" class="button small" onClick={onVerify}>
            Verify here
          </button>
          {verification.state === "error" && <Text text={verification.message} />}
        </span>
      );
  }
}
