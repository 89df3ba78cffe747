// Something that the reader starts and the venue does: it is busy for a while, and may fail.

import { useState } from "preact/hooks";
import { messageOf } from "../api/client";

export interface Action {
  readonly isBusy: boolean;
  /** Why the last attempt failed. */
  readonly problem: string | undefined;
  readonly act: (work: () => Promise<void>) => Promise<void>;
}

export function useAction(): Action {
  const [isBusy, setIsBusy] = useState(false);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const act = async (work: () => Promise<void>): Promise<void> => {
    setIsBusy(true);
    setProblem(undefined);
    try {
      await work();
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setIsBusy(false);
    }
  };
  return { isBusy, problem, act };
}
