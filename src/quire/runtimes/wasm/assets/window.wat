;; Reads and writes a guest's memory from outside, none of the guest's own code running.
;; What goes in and out lies in a memory of its own; one call, one string, always at $text.
(module
  (import "guest" "memory" (memory $guest 0))
  (memory $own (export "own") 1)
  (global $text i32 (i32.const 16))

  ;; 64 KiB pages there are
  (func (export "size") (result i32) (memory.size $guest))
  (func (export "grow") (param $pages i32) (result i32) (memory.grow $guest (local.get $pages)))

  (func (export "realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (call $room (i32.add (global.get $text) (local.get $size)))
    (global.get $text))

  ;; have the own memory reach up to there
  (func $room (param $end i32)
    (local $lack i32)
    (local.set $lack (i32.sub
      (i32.shr_u (i32.add (local.get $end) (i32.const 65535)) (i32.const 16)) (memory.size $own)))
    (if (i32.gt_s (local.get $lack) (i32.const 0))
      (then (if (i32.eq (memory.grow $own (local.get $lack)) (i32.const -1)) (then (unreachable))))))

  ;; a string of these bytes, as its function returns it
  (func $string (param $at i32) (param $size i32) (result i32)
    (i32.store $own (i32.const 0) (local.get $at))
    (i32.store $own (i32.const 4) (local.get $size))
    (i32.const 0))

  ;; 8 bytes for each page of 4 KiB from there on, so many
  (func (export "sums") (param $from i32) (param $pages i32) (result i32)
    (local $at i32) (local $to i32) (local $end i32)
    (local $a i64) (local $b i64) (local $c i64) (local $d i64)
    (local.set $at (i32.shl (local.get $from) (i32.const 12)))
    (local.set $to (global.get $text))
    (call $room (i32.add (local.get $to) (i32.shl (local.get $pages) (i32.const 3))))
    (block $done (loop $page
      (br_if $done (i32.eqz (local.get $pages)))
      (local.set $end (i32.add (local.get $at) (i32.const 4096)))
      (local.set $a (i64.const 0x243f6a8885a308d3))
      (local.set $b (i64.const 0x13198a2e03707344))
      (local.set $c (i64.const 0x24093822299f31d0))
      (local.set $d (i64.const 0x082efa98ec4e6c89))
      (loop $words
        (local.set $a (i64.rotl (i64.mul
          (i64.xor (local.get $a) (i64.load $guest (local.get $at))) (i64.const 0x9e3779b97f4a7c15)) (i64.const 29)))
        (local.set $b (i64.rotl (i64.mul
          (i64.xor (local.get $b) (i64.load $guest offset=8 (local.get $at))) (i64.const 0xc2b2ae3d27d4eb4f))
          (i64.const 31)))
        (local.set $c (i64.rotl (i64.mul
          (i64.xor (local.get $c) (i64.load $guest offset=16 (local.get $at))) (i64.const 0x165667b19e3779f9))
          (i64.const 37)))
        (local.set $d (i64.rotl (i64.mul
          (i64.xor (local.get $d) (i64.load $guest offset=24 (local.get $at))) (i64.const 0x27d4eb2f165667c5))
          (i64.const 41)))
        (local.set $at (i32.add (local.get $at) (i32.const 32)))
        (br_if $words (i32.ne (local.get $at) (local.get $end))))
      (i64.store $own (local.get $to) (i64.add
        (i64.xor (local.get $a) (i64.rotl (local.get $b) (i64.const 17)))
        (i64.xor (i64.rotl (local.get $c) (i64.const 34)) (i64.rotl (local.get $d) (i64.const 51)))))
      (local.set $to (i32.add (local.get $to) (i32.const 8)))
      (local.set $pages (i32.sub (local.get $pages) (i32.const 1)))
      (br $page)))
    (call $string (global.get $text) (i32.sub (local.get $to) (global.get $text))))

  ;; the pages whose numbers are given, 4 bytes each, one after the other
  (func (export "gather") (param $at i32) (param $size i32) (result i32)
    (local $to i32) (local $end i32) (local $first i32)
    (local.set $end (i32.add (local.get $at) (local.get $size)))
    (local.set $first (i32.and (i32.add (local.get $end) (i32.const 15)) (i32.const -16)))
    (local.set $to (local.get $first))
    (call $room (i32.add (local.get $to) (i32.shl (local.get $size) (i32.const 10))))
    (block $done (loop $page
      (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
      (memory.copy $own $guest
        (local.get $to) (i32.shl (i32.load $own (local.get $at)) (i32.const 12)) (i32.const 4096))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (local.set $to (i32.add (local.get $to) (i32.const 4096)))
      (br $page)))
    (call $string (local.get $first) (i32.sub (local.get $to) (local.get $first))))

  ;; pages to put in their places: 4 bytes of number, 4096 of content, as often as there are
  (func (export "scatter") (param $at i32) (param $size i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $at) (local.get $size)))
    (block $done (loop $page
      (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
      (memory.copy $guest $own
        (i32.shl (i32.load $own (local.get $at)) (i32.const 12))
        (i32.add (local.get $at) (i32.const 4))
        (i32.const 4096))
      (local.set $at (i32.add (local.get $at) (i32.const 4100)))
      (br $page))))
)
