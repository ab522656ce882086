# A static program whose branches can be counted by hand, for the test of step_truth (see step_truth_test.py).
# 1000 rounds; in each: a direct call, a return, an indirect call, its return, an indirect jump, a conditional taken on every second round,
# a rep movsb that must count as one instruction without a branch, and the loop's own conditional.
    .globl _start
    .text
_start:
    mov $1000, %ebx
    xor %ebp, %ebp
round:
    call leaf
    lea leaf(%rip), %rax
    call *%rax
    lea after(%rip), %rax
    jmp *%rax
after:
    lea buffer(%rip), %rsi
    lea buffer+64(%rip), %rdi
    mov $5, %ecx
    rep movsb
    test $1, %bl
    jz even
    inc %ebp
even:
    jmp next
    ud2
next:
    dec %ebx
    jnz round
    mov $39, %eax        # getpid
    syscall
    xor %edi, %edi
    mov $60, %eax        # exit
    syscall
    ud2
leaf:
    ret
    .bss
buffer:
    .skip 128
    .section .note.GNU-stack, "", @progbits
