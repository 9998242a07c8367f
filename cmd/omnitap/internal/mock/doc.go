package mock
