//! The size of a regular expression's program, before it is compiled.

/// Instructions of a class that is not written out, such as `\p{L}`.
const CLASS: u64 = 64;

/// Returns an upper bound of the instructions of a pattern: its characters, and those of a
/// repetition as often as it repeats them. A text of `n` bytes is matched in at most `n` times as
/// many operations, unless the pattern backtracks, which has a limit of its own.
pub(super) fn program_size(pattern: &str) -> u64 {
    let mut groups: Vec<u64> = vec![0];
    // The size of what a repetition would repeat.
    let mut last = 0_u64;
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '(' => groups.push(1),
            ')' => {
                let size = if groups.len() > 1 { groups.pop().unwrap_or(1) } else { 1 };
                last = size;
                add(&mut groups, size);
            }
            '{' => {
                let counts: String = rest.by_ref().take_while(|next| *next != '}').collect();
                let count = counts.split(',').filter_map(|count| count.trim().parse::<u64>().ok());
                let more = count.max().unwrap_or(1).saturating_sub(1);
                add(&mut groups, last.saturating_mul(more).saturating_add(1));
                last = last.saturating_mul(more.saturating_add(1));
            }
            '[' => {
                let mut size = 1;
                let mut is_escaped = false;
                for next in rest.by_ref() {
                    size += if is_escaped { CLASS } else { 1 };
                    if next == ']' && !is_escaped {
                        break;
                    }
                    is_escaped = next == '\\' && !is_escaped;
                }
                last = size;
                add(&mut groups, size);
            }
            '\\' => {
                let escaped = rest.next();
                let is_property = matches!(escaped, Some('p' | 'P'));
                if is_property && rest.peek() == Some(&'{') {
                    rest.by_ref().take_while(|next| *next != '}').for_each(drop);
                }
                let is_class =
                    matches!(escaped, Some('p' | 'P' | 'w' | 'W' | 'd' | 'D' | 's' | 'S'));
                last = if is_class { CLASS } else { 1 };
                add(&mut groups, last);
            }
            _ => {
                last = if character == '.' { 8 } else { 2 };
                add(&mut groups, last);
            }
        }
    }
    groups.into_iter().fold(1, u64::saturating_add)
}

fn add(groups: &mut [u64], size: u64) {
    if let Some(sum) = groups.last_mut() {
        *sum = sum.saturating_add(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_multiply() {
        assert!(program_size("abc") < 10);
        assert!(program_size("a{1000}") >= 1_000);
        assert!(program_size("((a{100}){100}){100}") >= 1_000_000);
        assert!(program_size("(a|b){10,20}") >= 60);
        assert!(program_size(r"\p{L}{50}") >= 3_200);
        assert!(program_size("[a-z]{3}") < 50);
    }

    #[test]
    fn a_pattern_that_is_malformed_has_a_size() {
        for pattern in ["", "(", ")", "[", "{", "a{", "a{x}", "\\", "((((", "{999}"] {
            assert!(program_size(pattern) < 2_000, "{pattern}");
        }
    }
}
