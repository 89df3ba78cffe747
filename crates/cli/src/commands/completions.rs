//! `catena completions`: shell completion scripts.
//!
//! The scripts complete commands and options by themselves. What an operation is invoked by differs
//! between venues and callers, so those words are asked of the venue when they are needed.

use clap::Command;
use clap_complete::Shell;

use crate::output::{Failure, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to print the script for.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Completes operations in addition to what the generated function knows. A word that follows an
/// option is its value.
const BASH: &str = r#"
_catena_operations() {
    _catena "$@"
    local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    if [[ ${previous} == -* ]]; then
        [[ "${COMP_WORDS[1]} ${COMP_WORDS[2]} ${previous}" == "jobs ls --op" ]] || return 0
        COMPREPLY=()
    else
        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
            run\ *) [[ ${COMP_CWORD} -ge 2 ]] || return 0 ;;
            "ops show"|"ops rm"|"schedules add") [[ ${COMP_CWORD} -ge 3 ]] || return 0 ;;
            *) return 0 ;;
        esac
    fi
    if [[ ${word} != -* ]]; then
        COMPREPLY+=($(compgen -W "$("$1" ops ls --names 2>/dev/null)" -- "${word}"))
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _catena_operations -o nosort -o bashdefault -o default catena
else
    complete -F _catena_operations -o bashdefault -o default catena
fi
"#;

const ZSH: &str = r#"
(( $+functions[_catena_operations] )) ||
_catena_operations() {
    local -a names
    names=(${(f)"$(catena ops ls --names 2>/dev/null)"})
    compadd -a names
}
"#;

const FISH: &str = r#"
complete -c catena -n "__fish_catena_using_subcommand run" -f -a "(catena ops ls --names 2>/dev/null)"
complete -c catena -n "__fish_catena_using_subcommand ops; and __fish_seen_subcommand_from show rm" -f -a "(catena ops ls --names 2>/dev/null)"
complete -c catena -n "__fish_catena_using_subcommand schedules; and __fish_seen_subcommand_from add" -f -a "(catena ops ls --names 2>/dev/null)"
complete -c catena -n "__fish_catena_using_subcommand jobs; and __fish_seen_subcommand_from ls" -l op -x -a "(catena ops ls --names 2>/dev/null)"
"#;

/// How the help of an argument that is an operation begins in the script of zsh.
const ZSH_ARGUMENTS: [&str; 3] = ["':op -- ", "':reference -- ", "'--op=["];

pub(crate) fn run(args: &Args, command: &mut Command, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "catena", &mut script);
    let script = String::from_utf8_lossy(&script);
    output.bytes(with_operations(args.shell, &script).as_bytes());
    Ok(())
}

/// A script that also completes the names of operations, for the shells for which there is one.
fn with_operations(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Fish => format!("{script}{FISH}"),
        Shell::Zsh => zsh(script),
        _ => script.to_owned(),
    }
}

/// The function must be defined before the last lines of the script, which may call the completion.
fn zsh(script: &str) -> String {
    let mut complete = String::with_capacity(script.len() + ZSH.len());
    for line in script.lines() {
        if line.starts_with("if [ \"$funcstack[1]\"") {
            complete.push_str(ZSH);
        }
        let is_operation = ZSH_ARGUMENTS.iter().any(|start| line.starts_with(start));
        match line.strip_suffix(":_default' \\").filter(|_| is_operation) {
            Some(argument) => {
                complete.push_str(argument);
                complete.push_str(":_catena_operations' \\");
            }
            None => complete.push_str(line),
        }
        complete.push('\n');
    }
    complete
}
