package main

// floorBytes is how much heapFloor takes.
const floorBytes = 48 << 20

// heapFloor lies in the heap while it is held and is never touched, so that it takes
// address space and no memory. A small heap is collected every few megabytes, twenty
// times a second under load, on the CPUs of the server that is measured; with this it is
// collected every floorBytes at the most often. A large one is collected as ever.
func heapFloor() []byte { return make([]byte, floorBytes) }
