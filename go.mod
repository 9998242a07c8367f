module github.com/omnitap/omnitap

go 1.26
