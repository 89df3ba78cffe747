// Registering an operation: the definition, and every problem at its location.

import { useState } from "preact/hooks";
import { ApiError, messageOf } from "../api/client";
import { registerAsset } from "../api/operations";
import { TextArea } from "../components/form";
import { Graph } from "../components/graph";
import { Icon } from "../components/icons";
import { FieldProblem } from "../components/states";
import { Text } from "../components/text";
import { planOf } from "../lib/plan";
import type { PlanStep } from "../lib/plan";
import { lineOf } from "../lib/pointers";
import { navigate, paths } from "../lib/router";
import { JsonError, readText } from "@verify/json";
import { asList, asMap, asText } from "@verify/value";

const EXAMPLE = `{
  "name": "Fan out and join",
  "operation": {
    "adapter": "orchestrator",
    "input": {
      "type": "object",
      "required": ["n"],
      "properties": { "n": { "type": "integer" } }
    },
    "steps": [
      { "op": "test:echo", "name": "left", "input": { "a": ["input", "n"] } },
      { "op": "test:echo", "name": "right", "input": { "b": ["const", 2] } },
      { "op": "json:merge", "input": { "values": ["array", [0], [1]] } }
    ],
    "result": [2, "result"]
  }
}`;

interface Located {
  readonly line: number;
  readonly path: string;
  readonly problem: string;
}

export function RegisterPage() {
  const [text, setText] = useState(EXAMPLE);
  const [problems, setProblems] = useState<readonly Located[]>([]);
  const [other, setOther] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const plan = planIn(text);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setProblems([]);
    setOther(undefined);
    try {
      readText(text);
    } catch (error) {
      const line = error instanceof JsonError ? error.line : 1;
      setProblems([{ line, path: "", problem: messageOf(error) }]);
      return;
    }
    setIsBusy(true);
    try {
      navigate(paths.operation(await registerAsset(text)));
    } catch (error) {
      const found = problemsOf(error, text);
      setProblems(found);
      if (found.length === 0) setOther(messageOf(error));
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <p class="crumbs">
            <a href={paths.operations}>Operations</a>
          </p>
          <h1 tabIndex={-1}>Register an operation</h1>
        </div>
      </header>
      <form class="card form" onSubmit={(event) => void submit(event)}>
        <TextArea label="Definition (JSON)" text={text} onText={setText} rows={22} />
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy}>
            <Icon name="plus" /> {isBusy ? "Registering…" : "Register"}
          </button>
          <FieldProblem text={other} />
        </div>
      </form>
      {problems.length > 0 && (
        <section class="card" role="alert">
          <h2>
            {problems.length} {problems.length === 1 ? "problem" : "problems"}
          </h2>
          <ol class="problems">
            {problems.map(({ line, path, problem }, index) => (
              <li key={index}>
                <p>
                  <strong>Line {line}</strong>{" "}
                  {path !== "" && (
                    <code>
                      <Text text={path} most={200} />
                    </code>
                  )}{" "}
                  <Text text={problem} />
                </p>
                <pre class="excerpt">
                  <Text text={text.split("\n")[line - 1] ?? ""} most={200} />
                </pre>
              </li>
            ))}
          </ol>
        </section>
      )}
      {plan && plan.length > 0 && (
        <section class="card">
          <h2>Preview</h2>
          <Graph plan={plan} steps={[]} onStep={() => undefined} />
        </section>
      )}
    </>
  );
}

function planIn(text: string): PlanStep[] | undefined {
  try {
    return planOf(readText(text));
  } catch {
    return undefined;
  }
}

/** The problems that the venue found, each with its line. */
function problemsOf(error: unknown, text: string): Located[] {
  if (!(error instanceof ApiError)) return [];
  const listed = asList(asMap(error.body)?.get("problems")) ?? [];
  return listed.map((entry) => {
    const map = asMap(entry);
    const path = asText(map?.get("path")) ?? "";
    const problem = asText(map?.get("problem")) ?? "";
    return { path, problem, line: lineOf(text, path) };
  });
}
