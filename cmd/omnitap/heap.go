package main

// heapFloor lies in the heap and is never touched, so that it takes address space and no
// memory. A small heap is collected every few megabytes, twenty times a second under
// load, on the CPUs of the server that is measured; with this it is collected every
// floorBytes at the most often. A large one is collected as ever.
var heapFloor []byte

const floorBytes = 48 << 20

func raiseHeapFloor() { heapFloor = make([]byte, floorBytes) }
