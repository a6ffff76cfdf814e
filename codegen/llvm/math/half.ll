; Conversions between half and float for processors without instructions for them: LLVM calls these
; functions by name, and a process need not have them.  Bits go through integers, so that they are
; right too where numbers below the normal range count as zero.

define linkonce_odr hidden float @__extendhfsf2(half %x) {
  %h = bitcast half %x to i16
  %bits = zext i16 %h to i32
  %signed = and i32 %bits, 32768
  %sign = shl i32 %signed, 16
  %size = and i32 %bits, 32767
  %shifted = shl i32 %size, 13
  %normal = add i32 %shifted, 939524096                 ; (127 - 15) << 23
  %infinite = or i32 %shifted, 2139095040
  %few = uitofp i32 %size to float
  %subnormal = fmul float %few, 0x3E70000000000000      ; 2^-24
  %subnormal_bits = bitcast float %subnormal to i32
  %is_infinite = icmp uge i32 %size, 31744
  %is_subnormal = icmp ult i32 %size, 1024
  %large = select i1 %is_infinite, i32 %infinite, i32 %normal
  %magnitude = select i1 %is_subnormal, i32 %subnormal_bits, i32 %large
  %result = or i32 %magnitude, %sign
  %float = bitcast i32 %result to float
  ret float %float
}

define linkonce_odr hidden half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %rebased = sub i32 %size, 939520001                   ; ((127 - 15) << 23) - 4095
  %up = add i32 %rebased, %odd
  %normal = lshr i32 %up, 13
  %magnitude = bitcast i32 %size to float
  %aligned = fadd float %magnitude, 5.0e-01             ; its last bit is 2^-24
  %aligned_bits = bitcast float %aligned to i32
  %subnormal = sub i32 %aligned_bits, 1056964608
  %is_subnormal = icmp ult i32 %size, 947912704         ; 2^-14
  %finite = select i1 %is_subnormal, i32 %subnormal, i32 %normal
  %is_large = icmp uge i32 %size, 1199566848            ; 65520 rounds to infinity
  %bounded = select i1 %is_large, i32 31744, i32 %finite
  %is_nan = icmp ugt i32 %size, 2139095040
  %unsigned = select i1 %is_nan, i32 32256, i32 %bounded
  %result = or i32 %unsigned, %sign
  %narrow = trunc i32 %result to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}
