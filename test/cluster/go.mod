module github.com/servetrace/servetrace/test/cluster

go 1.26.0
