# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154  # what the guest expands; variables of scripts/vm
# Real programs between the guests, over their network.

# The program of a test is called so; library.sh has the library preloaded.
with=

test_redis_between_guests() {
    on 1 "start redis '*Ready to accept connections*' $with redis-server --bind 0.0.0.0 --protected-mode no --save ''"
    on 2 "head -c 1000000 /dev/urandom >/tmp/sent
        $with redis-cli -h 192.0.2.1 -x set key </tmp/sent &&
        $with redis-cli -h 192.0.2.1 --raw get key | head -c 1000000 >/tmp/back && cmp /tmp/sent /tmp/back"
    LIMIT=60 on 2 "$with redis-benchmark -h 192.0.2.1 -c 5 -n 500 -t set,get --csv"
    on 2 "$with redis-cli -h 192.0.2.1 shutdown nosave"
    on 1 await redis >/dev/null
}

test_iperf3_between_guests() {
    local direction
    for direction in "" --reverse; do
        on 1 "rm -f /tmp/iperf*; start iperf 'Server listening*' $with iperf3 --server --one-off --forceflush"
        on 2 "$with iperf3 --client 192.0.2.1 --bytes 16M $direction" | grep -E '(sender|receiver)$' | tee "$bed/iperf"
        # iperf3 sends whole blocks, and checks only now and then whether it has sent enough.
        [[ $(grep -cE ' (1[6-9]|2[0-9])\.[0-9] MBytes .*sender' "$bed/iperf") -eq 1 ]] || fail "iperf3 has not sent 16 MiB"
        on 1 await iperf >/dev/null
    done
}

test_nginx_and_curl_between_guests() {
    local sent
    on 1 "mkdir -p /tmp/site /var/lib/nginx
        head -c 4000000 /dev/urandom >/tmp/site/file
        echo 'daemon off; worker_processes 1; user root; error_log stderr notice; pid /tmp/nginx.number; events {}
            http { access_log off; server { listen 80; root /tmp/site; } }' >/tmp/nginx.conf
        start nginx '*start worker process *' $with nginx -e stderr -c /tmp/nginx.conf"
    sent=$(on 1 sha256sum </dev/null /tmp/site/file)
    [[ $(on 2 "$with curl --silent --fail http://192.0.2.1/file | sha256sum") == "${sent%% *} "* ]] ||
        fail "another file came"
    # Many requests over one connection.
    on 2 "$with curl --silent --fail --range 0-999 'http://192.0.2.1/file?[1-50]' | wc -c" | tee "$bed/ranges"
    [[ $(<"$bed/ranges") -eq 50000 ]] || fail "not 50 ranges of 1000 bytes"
    on 1 'kill -QUIT $(cat /tmp/nginx.number); await nginx' >/dev/null
}
