// Executors that are connected: how they isolate code, how busy they are, and when they were last heard of.

import type { Executor, Executors, Tier } from "../api/executors";
import { Fact } from "./facts";
import { Icon } from "./icons";
import { Text } from "./text";
import { Time } from "./time";

export function ExecutorList({ executors: all }: { executors: Executors }) {
  const { slots, running, executors, environments } = all;
  const waiting = environments.filter(({ executors }) => executors === 0);
  return (
    <>
      {executors.length === 0 ? (
        <p class="row">
          <Icon name="warn" /> No executor is connected: code waits until one is.
        </p>
      ) : (
        <>
          <p class="muted" role="status">
            {running.toLocaleString("en")} of {slots.toLocaleString("en")} {slots === 1 ? "slot" : "slots"} in use
          </p>
          <ul class="executors">
            {executors.map((executor) => (
              <ExecutorView key={executor.name} executor={executor} />
            ))}
          </ul>
        </>
      )}
      {waiting.length > 0 && (
        <p class="muted">
          Known, but not connected: <Text text={waiting.map(({ version }) => version).join(", ")} most={300} />
        </p>
      )}
    </>
  );
}

function ExecutorView({ executor }: { executor: Executor }) {
  const { name, tier, tiers, slots, running, heartbeat, announced, environments, unavailable } = executor;
  const missing = tiers.filter(({ isAvailable }) => !isAvailable);
  return (
    <li class="executor" data-executor={name}>
      <h3>
        <Text text={name} most={80} />
      </h3>
      {unavailable !== undefined && (
        <p class="row">
          <Icon name="warn" /> <Text text={unavailable} most={300} />
        </p>
      )}
      <dl class="facts narrow">
        <Fact name="Isolation">
          <Text text={tier ?? "none"} most={40} />
          {missing.length > 0 && (
            <span class="muted" title={missing.map(reasonOf).join("\n")}>
              {" "}
              (not {missing.map((tier) => tier.name).join(", ")})
            </span>
          )}
        </Fact>
        <Fact name="Slots">
          <span class="row wrap">
            <span>
              {running.toLocaleString("en")} of {slots.toLocaleString("en")} in use
            </span>
            {slots > 0 && (
              <meter min={0} max={slots} value={Math.min(running, slots)} aria-label={`Slots of ${name} in use`} />
            )}
          </span>
        </Fact>
        <Fact name="Last heartbeat">{heartbeat === undefined ? "–" : <Time at={heartbeat} />}</Fact>
        <Fact name="Announced">{announced === undefined ? "–" : <Time at={announced} />}</Fact>
        <Fact name="Environments">
          <Text text={environments.length === 0 ? "none" : environments.join(", ")} most={300} />
        </Fact>
      </dl>
    </li>
  );
}

const reasonOf = ({ name, reason }: Tier): string => `${name}: ${reason ?? "not available"}`;
