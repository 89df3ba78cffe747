// The reasons why a record is not valid at its position in the chain.

/** The kinds of faults in a chain, by the code that reports use. */
export type ChainCode =
  | "bad_start"
  | "binding"
  | "broken_link"
  | "finality"
  | "illegal_transition"
  | "bad_annotation"
  | "time_reversed"
  | "commitment";

/** The reason why a record is not valid at its position in the chain. */
export class ChainError extends Error {
  constructor(
    readonly code: ChainCode,
    reason: string,
  ) {
    super(reason);
  }
}
