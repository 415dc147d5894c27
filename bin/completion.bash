# completion.bash - what bash offers after graphhooks and gh-engine.
# SPDX-License-Identifier: Apache-2.0
#
# Options are those that the command's own --help names.

_graphhooks()
{
    local command=$1 current=$2 previous=$3 words=''

    COMPREPLY=()
    case ${command##*/}:$previous in
    graphhooks:graphhooks | graphhooks:*/graphhooks)
        words='env info plan --version --help' ;;
    graphhooks:env) words=--markdown ;;
    graphhooks:info) words=--json ;;
    *:--granularity) words='part layer chunk' ;;
    *:--scope) words='attn mlp moe moe_router moe_preprocess mamba' ;;
    *:--ep-overlap | *:--delay-wgrad) words='0 1' ;;
    *:--driver) words='soft cuda' ;;
    *:--model) words='gpt moe mla mamba hybrid' ;;
    *:--exchange) words='nccl copy kernel auto' ;;
    *:--schedule) words='1f1b interleaved zero-bubble dualpipev' ;;
    esac
    if [ -z "$words" ] && [[ $current == -* ]]; then
        words=$("$command" --help 2> /dev/null | grep -o -e '--[a-z][a-z-]*')
    fi
    if [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
}

# Else bash offers files.
complete -o default -F _graphhooks graphhooks gh-engine
