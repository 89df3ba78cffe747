// How far a job is: its own figures, with rate and remaining time.

import type { Progress } from "../../api/jobs";
import { Text } from "../../components/text";
import { duration } from "../../lib/time";

export function ProgressBar({ progress }: { progress: Progress }) {
  const { percent, processedItems, totalItems, ratePerSecond, message } = progress;
  const isCounted = processedItems !== undefined && totalItems !== undefined;
  const remaining =
    progress.remainingMs ??
    (isCounted && ratePerSecond ? ((totalItems - processedItems) / ratePerSecond) * 1000 : undefined);
  return (
    <section class="progress" aria-label="Progress">
      <progress max={100} value={percent ?? 0} aria-label="Progress of the job">
        {percent ?? 0} %
      </progress>
      <p class="row wrap muted">
        {percent !== undefined && <strong>{percent} %</strong>}
        {isCounted && (
          <span>
            {processedItems.toLocaleString("en")} of {totalItems.toLocaleString("en")}
          </span>
        )}
        {ratePerSecond !== undefined && <span>{ratePerSecond} per second</span>}
        {remaining !== undefined && <span>about {duration(remaining)} left</span>}
        {message && <Text text={message} most={300} />}
      </p>
    </section>
  );
}
