/** All commands except the default one, which starts a job: their words and summaries. */
export const commands: Readonly<Record<string, string>> = {
  'init [folder]': 'begin a project: a script, its test, and what they need',
  hosts: 'start a job on other hosts with ssh',
  'ps [run-id]': 'show what the ranks of the jobs on this host are doing',
  'top [run-id]': 'watch the ranks of the jobs on this host',
  'stacks [run-id]': 'show where the ranks of the jobs on this host are in their JavaScript',
  'logs [run]': 'show what the ranks of a run have written',
  'flight <folder>': 'compare the flight records of a failed job',
  'trace <folder..>': 'say where the time of the steps of a traced job went',
  'view <folder..>': 'show a recorded job on a page, step by step',
  doctor: 'check what this host has, and say what to do',
  env: 'print what a bug report needs to say about this host',
  'setup <what>': 'install what a backend needs: tsrun setup tensorflow, tsrun setup blas',
  'schedule [name]': 'draw and explain the schedule of a pipeline',
  plan: 'find the layouts in which a model fits into memory',
  'completion [shell]': 'print a completion script for bash, zsh or fish',
}

export const commandNames = Object.keys(commands).map((words) => words.split(' ', 1)[0]!)
