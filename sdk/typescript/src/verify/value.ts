// JSON-shaped values that keep what `JSON.parse` loses: an integer is a bigint, a double is a
// number, so `1` and `1.0` differ and big integers are exact.

export type Value = null | boolean | bigint | number | string | readonly Value[] | ValueMap;

/** An object. The last of several members with the same name wins. */
export type ValueMap = ReadonlyMap<string, Value>;

/** The object, or undefined if the value is of another kind. */
export function asMap(value: Value | undefined): ValueMap | undefined {
  return value instanceof Map ? value : undefined;
}

/** The array, or undefined if the value is of another kind. */
export function asList(value: Value | undefined): readonly Value[] | undefined {
  return Array.isArray(value) ? (value as readonly Value[]) : undefined;
}

/** The text of a string of any length. */
export function asText(value: Value | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The highest number of a step, a call or an attempt that a record can state. */
export const U32_MAX = 2n ** 32n - 1n;

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;

/** The integer if it fits 64 bits. A double is never an integer, whatever its value. */
export function asI64(value: Value | undefined): bigint | undefined {
  return typeof value === "bigint" && value >= I64_MIN && value <= I64_MAX ? value : undefined;
}
