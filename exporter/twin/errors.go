package twin

import (
	"errors"
	"fmt"
)

// Reasons why a request has no twin, or its answer nothing to compare. Their texts
// are the reasons of findings.
var (
	// ErrBody says that the request's body is no JSON object, or compressed.
	ErrBody = errors.New("the request's body is no JSON object")
	// ErrForm says that the request is a form, which is not sent again.
	ErrForm = errors.New("the request is a multipart form")
	// ErrUpgrade says that the request asks for another protocol, such as WebSocket.
	ErrUpgrade = errors.New("the request asks for another protocol")
	// ErrNoStream says that the request asked for no stream: its twin would be itself.
	ErrNoStream = errors.New("the request asks for no stream")
	// ErrIsTwin says that the request is a twin already: it was sent by another omnitap.
	ErrIsTwin = errors.New("the request is a twin itself")
	// ErrTarget says that the request is no POST to a path of the server.
	ErrTarget = errors.New("the request is no POST to a path")
	// ErrStreamed says that the server answered with a stream all the same.
	ErrStreamed = errors.New("the twin's answer is a stream of events")
	// ErrNoSound says that there is no sound in the answer.
	ErrNoSound = errors.New("no sound in the twin's answer")
	// ErrMalformed says that the answer is not what it declares.
	ErrMalformed = errors.New("the twin's answer is malformed")
	// ErrFormat says that the sound is compressed or of a coding that is not decoded.
	ErrFormat = errors.New("the twin's sound is not decoded")
	// ErrTooLong says that the answer is over MaxBytes.
	ErrTooLong = errors.New("the twin's answer is too long")
	// ErrTimeout says that the answer did not come to its end within Timeout.
	ErrTimeout = errors.New("the twin's answer took too long")
)

// StatusError says that the server refused the twin. The server's own words are
// left out: some quote the request.
type StatusError struct {
	// Code is the HTTP status, or the code of an error in an answer of status 200; 0
	// where there is none.
	Code int
}

// Error is part of error.
func (e *StatusError) Error() string {
	if e.Code == 0 {
		return "the server answered the twin with an error"
	}
	return fmt.Sprintf("the server answered the twin with %d", e.Code)
}
