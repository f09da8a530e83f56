# Completion of tsrun in fish, of `tsrun ...` as well as `npx tsrun ...`: `tsrun completion fish` prints it.

# Prints the path of the tsrun that npx would run: that of the project, else the one on the PATH.
function __tsrun_program
    set -l folder (pwd)
    while true
        if test -x $folder/node_modules/.bin/tsrun
            echo $folder/node_modules/.bin/tsrun
            return
        end
        test "$folder" = / -o -z "$folder"; and break
        set folder (string replace --regex '/[^/]*$' '' -- $folder)
    end
    command --search tsrun
end

# Prints the words of `npx tsrun ...` from `tsrun` on, without the one before the cursor.
function __tsrun_behind_npx
    set -l words (commandline --cut-at-cursor --tokenize --current-process)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case tsrun
                printf '%s\n' $words[$i..]
                return
            case -p --package -w --workspace
                set i (math $i + 1)
            case -c --call
                return 1
            case '-*'
            case '*'
                return 1
        end
        set i (math $i + 1)
    end
    return 1
end

# Whether the command of npx is still to come.
function __tsrun_npx_needs_command
    set -l words (commandline --cut-at-cursor --tokenize --current-process)
    __tsrun_program >/dev/null; and not string match --quiet --invert --regex '^-' -- $words[2..]
end

# Completes the words that follow `tsrun`, which is the first argument.
function __tsrun_complete
    set -l program (__tsrun_program); or return
    set -l current (commandline --cut-at-cursor --current-token)
    set -l prefix (string match --regex -- '^--[^=]*=' $current)
    set -l path (string replace --regex -- '^--[^=]*=' '' $current)
    for line in ($program --get-yargs-completions $argv "$current" 2>/dev/null)
        switch $line
            case :files
                printf "$prefix%s\n" (__fish_complete_path "$path")
            case :folders
                printf "$prefix%s\n" (__fish_complete_directories "$path" '')
            case '*'
                echo $line
        end
    end
end

complete --command tsrun --no-files --arguments '(__tsrun_complete (commandline --cut-at-cursor --tokenize --current-process))'
complete --command npx --no-files --condition __tsrun_behind_npx --arguments '(__tsrun_complete (__tsrun_behind_npx))'
complete --command npx --condition __tsrun_npx_needs_command --arguments tsrun
