#compdef tsrun
# Completion of tsrun in zsh, of `tsrun ...` as well as `npx tsrun ...`: `tsrun completion zsh` prints it.

if (( ! $+functions[compdef] )); then
  autoload -Uz compinit && compinit
fi

# Prints the path of the tsrun that npx would run: that of the project, else the one on the PATH.
_tsrun_program() {
  local folder=$PWD
  while true; do
    if [[ -x $folder/node_modules/.bin/tsrun ]]; then
      print -r -- $folder/node_modules/.bin/tsrun
      return
    fi
    [[ $folder == / ]] && break
    folder=${folder:h}
  done
  whence -p tsrun
}

_tsrun() {
  local program line word description files=''
  local -a found
  program=$(_tsrun_program) || return 1
  for line in "${(@f)$("$program" --get-yargs-completions tsrun "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null)}"; do
    case $line in
      (:*) files=$line ;;
      (?*)
        word=${line%%$'\t'*}
        description=${line#*$'\t'}
        found+=("${word//:/\\:}:$description")
        ;;
    esac
  done
  local result=1
  (( $#found )) && _describe tsrun found && result=0
  [[ -n $files && $PREFIX == --*=* ]] && compset -P '*='
  case $files in
    (:files) _files && result=0 ;;
    (:folders) _files -/ && result=0 ;;
  esac
  return result
}

_tsrun_npx() {
  local i result=1
  for (( i = 2; i < CURRENT; i++ )); do
    case $words[i] in
      (tsrun)
        shift $(( i - 1 )) words
        (( CURRENT -= i - 1 ))
        _tsrun
        return
        ;;
      (-p|--package|-w|--workspace) (( i++ )) ;;
      (-c|--call) break ;;
      (-*) ;;
      (*) break ;;
    esac
  done
  if [[ -n $_tsrun_npx_before ]]; then
    "${(@z)_tsrun_npx_before}" "$@" && result=0
  else
    _default && result=0
  fi
  # The first word that is no flag is the command.
  if (( i == CURRENT )) && _tsrun_program > /dev/null; then
    compadd tsrun && result=0
  fi
  return result
}

# What completes npx so far still does, for all other commands.
if [[ ${_comps[npx]-} != _tsrun_npx ]]; then
  typeset -g _tsrun_npx_before=${_comps[npx]-}
fi
compdef _tsrun tsrun
compdef _tsrun_npx npx
