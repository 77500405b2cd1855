// A server that echoes, and a client that compares: net and net/http, without the C library.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"sync"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() {
	echo, err := net.Listen("tcp", "127.0.0.1:7001")
	must(err)
	go func() {
		for {
			connection, err := echo.Accept()
			must(err)
			go func() {
				io.Copy(connection, connection)
				connection.Close()
			}()
		}
	}()
	http.HandleFunc("/echo", func(answer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		answer.Write(body)
	})
	must(http.ListenAndServe("127.0.0.1:7002", nil))
}

func client(seed int) {
	data := make([]byte, 1000000)
	rand.New(rand.NewSource(int64(seed))).Read(data)
	connection, err := net.Dial("tcp", os.Args[2])
	must(err)
	go func() {
		connection.Write(data)
		connection.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(connection)
	must(err)
	if !bytes.Equal(got, data) {
		must(fmt.Errorf("%d bytes came back, and not as they were sent", len(got)))
	}
}

func main() {
	if os.Args[1] == "serve" {
		serve()
	}
	var all sync.WaitGroup
	for seed := range 20 {
		all.Go(func() { client(seed) })
	}
	all.Wait()
}
