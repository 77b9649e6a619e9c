#!/bin/sh
# A handler that keeps running, in plain shell (docs/pipe.md):
#
#   semel work --queue 'sqlite:shop.db?queue=orders' --pipe 'sh handler.sh' --effects sql
#
# The row that it writes commits with the record of the message: once for each effect key.
echo '{"ready":1}'
while read -r line; do
  case $line in
  '{"id":'*) ;;
  *) continue ;; # cancel and extend: a run of this handler is too short to stop
  esac
  id=${line#'{"id":'} && id=${id%%,*}
  effect_key=${line#*'"effect_key":"'} && effect_key=${effect_key%%'"'*}
  echo "{\"id\":$id,\"outcome\":\"done\",\"effects\":[{\"insert\":\"charges\",\"row\":{\"effect_key\":\"$effect_key\"}}]}"
done
