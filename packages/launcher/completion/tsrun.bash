# Completion of tsrun in bash, of `tsrun ...` as well as `npx tsrun ...`: `tsrun completion bash` prints it.

# Prints the path of the tsrun that npx would run: that of the project, else the one on the PATH.
_tsrun_program() {
  local folder=$PWD
  while :; do
    if [[ -x $folder/node_modules/.bin/tsrun ]]; then
      printf '%s\n' "$folder/node_modules/.bin/tsrun"
      return
    fi
    [[ -n $folder ]] || break
    folder=${folder%/*}
  done
  type -P tsrun
}

# Completes the words from index $1 on, which is that of `tsrun`.
_tsrun_complete() {
  local program word current prefix='' line
  local -a words=()
  program=$(_tsrun_program) || return 0
  # bash splits words at = and :, too.
  for word in "${COMP_WORDS[@]:$1+1:COMP_CWORD-$1}"; do
    if ((${#words[@]} > 0)) && [[ $word == [=:]* || ${words[${#words[@]}-1]} == *[=:] ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
  done
  current=${words[${#words[@]}-1]}
  # bash replaces what follows the last of these characters.
  if [[ $current == *[=:]* && $COMP_WORDBREAKS == *=* ]]; then
    prefix=${current%"${current##*[=:]}"}
  fi
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files | :folders)
        compopt -o filenames 2> /dev/null
        word=-f
        [[ $line == :folders ]] && word=-d
        while IFS= read -r line; do
          COMPREPLY+=("$line")
        done < <(compgen "$word" -- "${current#"$prefix"}")
        ;;
      *)
        line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$prefix"}")
        ;;
    esac
  done < <("$program" --get-yargs-completions tsrun "${words[@]}" 2> /dev/null)
}

_tsrun() {
  _tsrun_complete 0
}

_tsrun_npx() {
  local i status=0
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      tsrun)
        _tsrun_complete "$i"
        return
        ;;
      -p | --package | -w | --workspace)
        ((i++))
        # bash splits words at @, too.
        [[ ${COMP_WORDS[i]} == @ ]] && ((i++))
        ;;
      -c | --call) break ;;
      -* | =) ;;
      *) break ;;
    esac
  done
  if [[ -n $_tsrun_npx_before ]]; then
    "$_tsrun_npx_before" "$@"
    status=$?
  fi
  # The first word that is no flag is the command.
  if ((i == COMP_CWORD)) && [[ -n ${COMP_WORDS[i]} && tsrun == "${COMP_WORDS[i]}"* && " ${COMPREPLY[*]} " != *' tsrun '* ]]; then
    _tsrun_program > /dev/null && COMPREPLY+=(tsrun)
  fi
  return "$status"
}

complete -o bashdefault -o default -F _tsrun tsrun

# What completes npx so far still does, for all other commands.
_tsrun_wrap_npx() {
  local specification
  declare -F __load_completion > /dev/null && __load_completion npx 2> /dev/null
  specification=$(complete -p npx 2> /dev/null)
  case $specification in
    *' -F _tsrun_npx '*) ;;
    '')
      _tsrun_npx_before=
      complete -o bashdefault -o default -F _tsrun_npx npx
      ;;
    *' -F '*)
      _tsrun_npx_before=${specification#* -F }
      _tsrun_npx_before=${_tsrun_npx_before%% *}
      eval "${specification/ -F $_tsrun_npx_before / -F _tsrun_npx }"
      ;;
  esac
}
_tsrun_wrap_npx
unset -f _tsrun_wrap_npx
